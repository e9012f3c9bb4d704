"""What a step works on besides its arguments: found, compared at each call, and put back."""
