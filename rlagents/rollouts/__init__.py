"""rlagents.rollouts"""
