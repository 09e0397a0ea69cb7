"""rlagents.models"""
