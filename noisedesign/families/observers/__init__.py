"""Noise designed against chosen observers only: less of it than protection from everybody takes."""
