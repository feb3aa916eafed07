"""Who may open the local web page: links that a person asks for, each good for one login (DESIGN 9, 10)."""
