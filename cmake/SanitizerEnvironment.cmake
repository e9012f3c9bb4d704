# sanitizer_environment(<variable>)
#
# Sets the variable to what the ENVIRONMENT of a test must hold that starts programs under libnimble.so: in a build with
# a sanitizer (NIMBLE_SANITIZER), the sanitizer's runtime, which must be loaded before the library; else nothing.
function(sanitizer_environment variable)
  set(environment "")
  if(NIMBLE_SANITIZER)
    set(runtime_address asan)
    set(runtime_thread tsan)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${runtime_${NIMBLE_SANITIZER}}.so
      OUTPUT_VARIABLE sanitizer_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(environment "NIMBLE_TEST_PRELOAD=${sanitizer_runtime}")
  endif()
  set(${variable} "${environment}" PARENT_SCOPE)
endfunction()
