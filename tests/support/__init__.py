"""What tests of several parts share: wrapped file systems and a clock that stands still."""
