"""What is heard, served and announced on the bus as rooms and members come and go."""
