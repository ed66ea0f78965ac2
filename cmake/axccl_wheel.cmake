# What a wheel of the Python package holds (tools/python/pyproject.toml), with AXCCL_WHEEL: an installation without CMake's
# and pkg-config's files in the package's folder, in which nothing needs more than the C library.
#
# libstdc++ and libsodium are linked into each object, because the machine that runs a wheel may have other versions.
option(AXCCL_WHEEL "Build what a wheel of the Python package holds" OFF)
set(AXCCL_WHEEL_GLIBC "" CACHE STRING
  "The oldest glibc that a wheel runs on, such as 2.28, if that is not the one of this machine (x86-64; needs PyPI's ziglang)")

# axccl_wheel_glibc(VERSION): links all objects with the symbols that this glibc has, which the package ziglang knows, and
# with tools/python/glibc/compat.c for the few that it has not. Headers are those of this machine.
function(axccl_wheel_glibc version)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    message(FATAL_ERROR "AXCCL_WHEEL_GLIBC=${version} is for x86-64; leave it empty on ${CMAKE_SYSTEM_PROCESSOR}")
  endif()
  set(folder ${CMAKE_BINARY_DIR}/glibc)
  if(NOT EXISTS ${folder}/${version})
    file(REMOVE_RECURSE ${folder})
    file(WRITE ${folder}/empty.c "int axccl_empty;\n")
    execute_process(COMMAND ${CMAKE_COMMAND} -E env ZIG_GLOBAL_CACHE_DIR=${folder}/zig ZIG_LOCAL_CACHE_DIR=${folder}/zig
        ${Python_EXECUTABLE} -m ziglang cc -target x86_64-linux-gnu.${version} -shared -fPIC empty.c -o empty.so
      WORKING_DIRECTORY ${folder} RESULT_VARIABLE failed)
    file(GLOB stubs ${folder}/zig/o/*/libpthread.so.0)
    if(failed OR NOT stubs)
      message(FATAL_ERROR "AXCCL_WHEEL_GLIBC=${version}: no stubs; install ziglang for ${Python_EXECUTABLE}")
    endif()
    list(GET stubs 0 stubs)
    get_filename_component(stubs ${stubs} DIRECTORY)
    foreach(library c.so.6 m.so.6 pthread.so.0 dl.so.2 rt.so.1)
      file(COPY ${stubs}/lib${library} DESTINATION ${folder})
      string(REGEX REPLACE "[.].*" "" name ${library})
      file(CREATE_LINK lib${library} ${folder}/lib${name}.so SYMBOLIC)
    endforeach()
    # As glibc's own libc.so, a script.
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libc_nonshared.a OUTPUT_VARIABLE archive
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    file(REMOVE ${folder}/libc.so)
    file(WRITE ${folder}/libc.so
      "GROUP ( ${folder}/libc.so.6 ${archive} AS_NEEDED ( /lib64/ld-linux-x86-64.so.2 ) )\n")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -O2 -fPIC -c ${PROJECT_SOURCE_DIR}/tools/python/glibc/compat.c
      -o ${folder}/compat.o COMMAND_ERROR_IS_FATAL ANY)
    file(TOUCH ${folder}/${version})
  endif()
  # This machine's libgcc_s needs this machine's glibc, which the linker of a program would look for.
  set(CMAKE_CXX_STANDARD_LIBRARIES
    "-Wl,--allow-shlib-undefined ${folder}/compat.o -L${folder} -lpthread -ldl -lrt" PARENT_SCOPE)
endfunction()

# axccl_wheel_runtime(): before any folder.
function(axccl_wheel_runtime)
  find_path(AXCCL_SODIUM_INCLUDE sodium.h)
  find_library(AXCCL_SODIUM_ARCHIVE libsodium.a)
  if(NOT AXCCL_SODIUM_INCLUDE OR NOT AXCCL_SODIUM_ARCHIVE)
    message(FATAL_ERROR "A wheel needs libsodium.a and sodium.h (Debian: libsodium-dev)")
  endif()
  add_library(PkgConfig::sodium STATIC IMPORTED GLOBAL)  # the name under which folders link it
  set_target_properties(PkgConfig::sodium PROPERTIES IMPORTED_LOCATION ${AXCCL_SODIUM_ARCHIVE}
    INTERFACE_INCLUDE_DIRECTORIES ${AXCCL_SODIUM_INCLUDE})
  foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS "${CMAKE_${kind}_LINKER_FLAGS} -static-libstdc++" PARENT_SCOPE)
  endforeach()
  if(AXCCL_WHEEL_GLIBC)
    axccl_wheel_glibc(${AXCCL_WHEEL_GLIBC})
    set(CMAKE_C_STANDARD_LIBRARIES "${CMAKE_CXX_STANDARD_LIBRARIES}" PARENT_SCOPE)
    set(CMAKE_CXX_STANDARD_LIBRARIES "${CMAKE_CXX_STANDARD_LIBRARIES}" PARENT_SCOPE)
  endif()
endfunction()

# axccl_wheel(PROGRAM...): the install rules, and the target wheel_contents, which builds what they need. One file for each
# library, under the name by which it is loaded: wheels have no links.
function(axccl_wheel)
  set(libraries axccl axccl_malloc)
  set_target_properties(${libraries} PROPERTIES VERSION 0)
  install(TARGETS ${libraries} LIBRARY DESTINATION axccl/lib COMPONENT wheel NAMELINK_SKIP)
  if(TARGET axccl_dropin)
    list(APPEND libraries axccl_dropin)
    install(TARGETS axccl_dropin LIBRARY DESTINATION axccl/lib/axccl/dropin COMPONENT wheel NAMELINK_SKIP)
  endif()
  if(TARGET axccl_mpi)
    list(APPEND libraries axccl_mpi)
    install(TARGETS axccl_mpi LIBRARY DESTINATION axccl/lib COMPONENT wheel)
  endif()
  # For -laxccl.
  file(WRITE ${CMAKE_BINARY_DIR}/wheel/libaxccl.so "INPUT ( libaxccl.so.0 )\n")
  install(FILES ${CMAKE_BINARY_DIR}/wheel/libaxccl.so DESTINATION axccl/lib COMPONENT wheel)
  set(programs)
  foreach(program ${ARGN})
    if(TARGET ${program})
      list(APPEND programs ${program})
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    endif()
  endforeach()
  install(TARGETS ${programs} RUNTIME DESTINATION axccl/bin COMPONENT wheel)
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h DESTINATION axccl/include/axccl COMPONENT wheel)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/axccl/ DESTINATION axccl/include/axccl COMPONENT wheel)
  install(TARGETS axccl_python LIBRARY DESTINATION axccl COMPONENT wheel)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/tools/python/licenses/libsodium.txt
    DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT wheel)
  add_custom_target(wheel_contents DEPENDS ${libraries} ${programs} axccl_python)
endfunction()
