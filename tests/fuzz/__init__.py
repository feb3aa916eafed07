"""Every decoder, fed with anything: by hypothesis in the tests, and for as long as one likes by ``make fuzz``."""
