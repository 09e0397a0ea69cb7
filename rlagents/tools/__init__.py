"""rlagents.tools"""
