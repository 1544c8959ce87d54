"""Kills lander and job, cuts their files, and holds the tables against what landed."""
