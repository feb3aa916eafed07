"""What data there is: datatypes, annotations and who may write them, as the declarations say."""
