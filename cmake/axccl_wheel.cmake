# What a wheel of the Python package holds (tools/python/pyproject.toml), with AXCCL_WHEEL: an installation without CMake's
# and pkg-config's files in the package's folder, in which nothing needs more than the C library.
#
# libstdc++, libgcc and libsodium are linked into each object, because the machine that runs a wheel may have other versions.
option(AXCCL_WHEEL "Build what a wheel of the Python package holds" OFF)

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
    set(CMAKE_${kind}_LINKER_FLAGS "${CMAKE_${kind}_LINKER_FLAGS} -static-libstdc++ -static-libgcc" PARENT_SCOPE)
  endforeach()
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
