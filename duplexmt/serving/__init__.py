"""The live server: sessions of many speakers over one engine."""
