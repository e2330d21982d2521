"""The live server: sessions of many speakers over one engine, its protocol, and a client."""
