# Writes ${OUTPUT}: for each function of cuda.h a weak stand-in, which the linker drops where the driver defines the
# function, and a table of them all.
#
# COMPILER, INCLUDE_DIR and OUTPUT are given with -D.
get_filename_component(folder ${OUTPUT} DIRECTORY)
file(WRITE ${folder}/all_of_cuda.cpp "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n")
execute_process(
  COMMAND ${COMPILER} -E -P -I${INCLUDE_DIR} ${folder}/all_of_cuda.cpp
  OUTPUT_VARIABLE text RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "cannot preprocess ${INCLUDE_DIR}/cuda.h")
endif()
string(REGEX REPLACE "[;\n\r]" " " text "${text}")
string(REGEX MATCHALL "CUresult +cu[A-Z][A-Za-z0-9_]* *\\(" matches "${text}")
set(names)
foreach(match IN LISTS matches)
  string(REGEX REPLACE "CUresult +(cu[A-Z][A-Za-z0-9_]*) *\\(" "\\1" name "${match}")
  list(APPEND names ${name})
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names COMPARE STRING CASE SENSITIVE)
list(LENGTH names count)
if(count LESS 400)
  message(FATAL_ERROR "only ${count} functions were found in ${INCLUDE_DIR}/cuda.h")
endif()

set(stubs "")
set(table "")
foreach(name IN LISTS names)
  string(APPEND stubs
    "__attribute__((weak, visibility(\"default\"))) int ${name}() { return simcuda_not_implemented(\"${name}\"); }\n")
  string(APPEND table "    {\"${name}\", reinterpret_cast<void (*)()>(&${name})},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Generated from cuda.h. Not edited.
#include \"tests/simcuda/driver/generated_exports.h\"

extern \"C\" {
${stubs}
const SimExport simcuda_exports[] = {
${table}};
const std::size_t simcuda_export_count = ${count};
}
")
