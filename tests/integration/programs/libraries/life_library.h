// A library that is set up before libnimble.so, and torn down after it, as all libraries are that a program is linked
// against.
#pragma once

extern "C" {
// Called by the library's destructor.
void life_at_end(void (*function)());
// How often the library's constructor launched: LIFE_EARLY in the environment names the way, linked or dlsym.
int life_early_launches();
}
