"""Measures of predictions: arrays in, numbers out."""
