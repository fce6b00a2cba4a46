"""What a user calls, one public function a file."""
