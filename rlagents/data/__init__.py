"""rlagents.data"""
