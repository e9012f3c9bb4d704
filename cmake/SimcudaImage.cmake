# add_simcuda_image(<target> SOURCE <file.cu> OUTPUT <path> [PTX <file.ptx>])
#
# Builds a kernel source with the host compiler into a module image for the simulated driver, and adds a target for it.
# The source includes tests/simcuda/image/kernel.h; the layout of an image is in tests/simcuda/image/image_abi.h. Relative
# paths are relative to the current source folder (SOURCE, PTX) and the current binary folder (OUTPUT). PTX is what nvcc made
# of the same source: it is packed beside the code.
#
# The compiler is called directly, with none of the build's own flags: an image must compute the same in every preset, and
# the build's sanitizers must not get into it (the instrumented object borrows the thread sanitizer's instrumentation, and
# links no sanitizer).

include(CheckCXXCompilerFlag)
set(SIMCUDA_IMAGE_DIR ${CMAKE_SOURCE_DIR}/tests/simcuda/image)
set(SIMCUDA_IMAGE_FLAGS -std=c++20 -O2 -g1 -fPIC -Wall -Wextra -ffp-contract=off -fvisibility=hidden
    -fno-semantic-interposition -fno-exceptions -fno-rtti)
check_cxx_compiler_flag(-fno-gnu-unique SIMCUDA_HAS_NO_GNU_UNIQUE)
if(SIMCUDA_HAS_NO_GNU_UNIQUE)
  list(APPEND SIMCUDA_IMAGE_FLAGS -fno-gnu-unique) # else the image could never be unloaded
endif()
set(SIMCUDA_IMAGE_FLAGS ${SIMCUDA_IMAGE_FLAGS} CACHE INTERNAL "")
set(SIMCUDA_IMAGE_DIR ${SIMCUDA_IMAGE_DIR} CACHE INTERNAL "")

function(add_simcuda_image target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;OUTPUT;PTX" "")
  if(NOT arg_SOURCE OR NOT arg_OUTPUT OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_simcuda_image(<target> SOURCE <file> OUTPUT <path> [PTX <file>])")
  endif()
  set(ptx)
  if(arg_PTX)
    get_filename_component(ptx ${arg_PTX} ABSOLUTE)
  endif()
  get_filename_component(source ${arg_SOURCE} ABSOLUTE)
  get_filename_component(output ${arg_OUTPUT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  get_filename_component(output_folder ${output} DIRECTORY)
  set(work ${CMAKE_CURRENT_BINARY_DIR}/${target}.image)
  file(MAKE_DIRECTORY ${work} ${output_folder})
  set(runtime ${SIMCUDA_IMAGE_DIR}/image_runtime.cpp)

  foreach(variant plain instrumented)
    set(kernel_flags)
    set(runtime_flags)
    set(link_flags)
    if(variant STREQUAL "instrumented")
      # Block operations stay calls, so that the link can wrap them.
      set(kernel_flags -fsanitize=thread -fno-builtin-memcpy -fno-builtin-memmove -fno-builtin-memset)
      set(runtime_flags -DSIMCUDA_INSTRUMENTED)
      set(link_flags -Wl,--wrap=memcpy -Wl,--wrap=memmove -Wl,--wrap=memset)
    endif()
    add_custom_command(
      OUTPUT ${work}/${variant}.o
      COMMAND ${CMAKE_CXX_COMPILER} ${SIMCUDA_IMAGE_FLAGS} ${kernel_flags} -I${CMAKE_SOURCE_DIR}
              -MD -MT ${work}/${variant}.o -MF ${work}/${variant}.d -x c++ -c ${source} -o ${work}/${variant}.o
      DEPENDS ${source}
      DEPFILE ${work}/${variant}.d
      COMMENT "Compiling kernels ${arg_SOURCE} (${variant})"
      VERBATIM)
    add_custom_command(
      OUTPUT ${work}/${variant}.so
      COMMAND ${CMAKE_CXX_COMPILER} ${SIMCUDA_IMAGE_FLAGS} ${runtime_flags} -I${CMAKE_SOURCE_DIR} -shared
              -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,defs ${link_flags} ${runtime} ${work}/${variant}.o -lm
              -o ${work}/${variant}.so
      DEPENDS ${work}/${variant}.o ${runtime} ${SIMCUDA_IMAGE_DIR}/image_abi.h
      COMMENT "Linking kernels ${arg_SOURCE} (${variant})"
      VERBATIM)
  endforeach()

  add_custom_command(
    OUTPUT ${output}
    COMMAND simcuda_pack_image ${output} ${work}/plain.so ${work}/instrumented.so ${ptx}
    DEPENDS ${work}/plain.so ${work}/instrumented.so ${ptx} simcuda_pack_image
    COMMENT "Packing ${arg_OUTPUT}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${output})
endfunction()
