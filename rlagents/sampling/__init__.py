"""rlagents.sampling"""
