"""The HTTP methods that faces answer themselves, even if with an error."""

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
