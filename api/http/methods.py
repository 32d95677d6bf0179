"""The methods of HTTP that faces answer themselves, be it with an error."""

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
