"""Speech as the TIMIT experiments use it: files read at 8 kHz, spectra and back, and how good rebuilt speech is."""
