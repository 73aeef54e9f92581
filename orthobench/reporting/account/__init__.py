"""What is said about results, without markup and without figures: the other rooms of reporting show it."""
