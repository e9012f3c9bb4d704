// Loads what it is linked against: a library that calls cuBLAS, and the one in its place.
#include "tests/integration/programs/graphs/products.h"

extern "C" void* const products_needed[] = {reinterpret_cast<void*>(&products_make),
                                            reinterpret_cast<void*>(&cublas_make)};
