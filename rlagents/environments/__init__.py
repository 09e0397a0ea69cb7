"""rlagents.environments"""
