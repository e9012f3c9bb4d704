#include <cstdio>
__global__ void print(int n) { printf("%d\n", n); }
