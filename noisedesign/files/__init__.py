"""Files: problems in, designs in and out."""
