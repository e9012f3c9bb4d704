// libc's own definitions of the functions that libnimble.so exports in front of it: dlsym, dlvsym and the like.
//
// The dynamic loader cannot be asked for them. An unversioned definition, which ours must be, also catches references
// to libc's versions of the name, our own references included. So the symbol tables of the loaded libc are read.
// Allocates nothing, takes no lock, any thread; meant for the first moments of a process.
#pragma once

namespace nimble::shim {

// The address of `name` in the libc of this process (before glibc 2.34 also libdl), or null.
void* libc_symbol(const char* name);

}  // namespace nimble::shim
