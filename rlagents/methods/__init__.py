"""rlagents.methods"""
