// What the address sanitizer asks every test for: what is no leak of ours. The C library keeps a thread's last error of
// dlsym() on the heap and frees it when the thread ends; a thread that ends as the process does may come too late.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:_dlerror_run\n"; }
