# Writes the source file that holds a digest of the prover's sources: their names and all that is in them.
#
#   cmake -DROOT=<the repository> -DOUT=<the file> -P ProverDigest.cmake
file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${ROOT} ${ROOT}/analyzer/kernel_code/*
  ${ROOT}/include/nimble/internal/*.h)
list(SORT files)
set(all "")
foreach(file ${files})
  file(SHA256 ${ROOT}/${file} digest)
  string(APPEND all "${file} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 16 digest)
file(WRITE ${OUT} "// Made by cmake/ProverDigest.cmake.
#include \"analyzer/kernel_code/prover_digest.h\"

namespace nimble::code {

std::uint64_t prover_digest() { return 0x${digest}; }

}  // namespace nimble::code
")
