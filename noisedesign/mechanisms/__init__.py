"""The published mechanisms: their noise, their accounts, and what they cost beside a design."""
