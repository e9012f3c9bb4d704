// Two libraries that look things up on behalf of a program: the answer depends on where the library that asks comes in
// the search order. `first` comes before the driver, `last` after it.
#pragma once

extern "C" {
void* first_lookup(void* handle, const char* name);
void* last_lookup(void* handle, const char* name);
}
