# The files that `cmake --install` installs, and the library for programs built for NCCL.
#
# nccl.h and libnccl.so go to folders of their own, because NVIDIA's package owns those names: the header to
# include/axccl/nccl.h, beside axccl.h which includes it, the library to lib/axccl/dropin.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# axccl_dropin(SOURCE): libnccl.so.2, which forwards every call to libaxccl.so, and libnccl.so to link with, in
# build/dropin and lib/axccl/dropin. It finds libaxccl.so relative to its own place (RPATH: LD_LIBRARY_PATH may name
# other versions), so this folder alone is enough, wherever it is moved together with the library.
function(axccl_dropin source)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|aarch64|arm64")
    message(STATUS "Left out: libnccl.so.2 (it jumps into libaxccl.so, and the jump is not implemented for this processor)")
    return()
  endif()
  set(folder ${CMAKE_BINARY_DIR}/dropin)
  if(IS_SYMLINK ${folder}/libnccl.so.2)  # an older version had links here, and the linker would write to their target
    file(REMOVE ${folder}/libnccl.so.2)
  endif()
  add_library(axccl_dropin SHARED ${source})
  target_include_directories(axccl_dropin PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(axccl_dropin PRIVATE axccl)
  target_link_options(axccl_dropin PRIVATE -Wl,--no-as-needed -Wl,--no-undefined -Wl,--disable-new-dtags)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/axccl/dropin /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(axccl_dropin PROPERTIES OUTPUT_NAME nccl SOVERSION 2
    LIBRARY_OUTPUT_DIRECTORY ${folder} BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN/${up};$ORIGIN/..")  # as installed; in the build folder
  install(TARGETS axccl_dropin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/axccl/dropin)
endfunction()

# axccl_malloc(SOURCE): libaxccl-malloc.so, for LD_PRELOAD, versioned as libaxccl.so, which it does not need: libaxccl.so
# finds it. Sanitizers have a malloc of their own.
function(axccl_malloc source)
  if(AXCCL_SANITIZE)
    return()
  endif()
  add_library(axccl_malloc SHARED ${source})
  target_link_libraries(axccl_malloc PRIVATE axccl_flags ${CMAKE_DL_LIBS})
  # -O2: every malloc of the program takes this way. The compiler knows malloc and would make calls of one function of the
  # family from those of another.
  target_compile_options(axccl_malloc PRIVATE -O2 -fno-builtin -fvisibility=hidden)
  target_link_options(axccl_malloc PRIVATE -Wl,--no-undefined -Wl,-z,nodelete)
  set_target_properties(axccl_malloc PROPERTIES OUTPUT_NAME axccl-malloc VERSION ${PROJECT_VERSION} SOVERSION 0
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  install(TARGETS axccl_malloc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# axccl_install_programs(TARGET...): installs the ones that exist to bin/, where they find the library.
function(axccl_install_programs)
  file(RELATIVE_PATH to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  foreach(program ${ARGN})
    if(TARGET ${program})
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
endfunction()

set(AXCCL_PROGRAMS axccl-info axccl-plan all_reduce_perf all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf
  alltoall_perf gather_perf scatter_perf sendrecv_perf hypercube_perf strided_perf)

function(axccl_install)
  install(TARGETS axccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h ${PROJECT_SOURCE_DIR}/include/axccl/axccl.h
                ${PROJECT_SOURCE_DIR}/include/axccl/channels.h ${PROJECT_SOURCE_DIR}/include/axccl/device.h ${PROJECT_SOURCE_DIR}/include/axccl/malloc.h
                ${PROJECT_SOURCE_DIR}/include/axccl/board.h
                ${PROJECT_SOURCE_DIR}/include/axccl/pipelines.h
                ${PROJECT_SOURCE_DIR}/include/axccl/types.h ${PROJECT_SOURCE_DIR}/include/axccl/views.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axccl)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  axccl_install_programs(${AXCCL_PROGRAMS})

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/axccl)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/axcclConfig.cmake.in
    ${CMAKE_BINARY_DIR}/axcclConfig.cmake INSTALL_DESTINATION ${package}
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/axcclConfig.cmake ${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake
    DESTINATION ${package})

  file(RELATIVE_PATH AXCCL_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" AXCCL_PC_TO_PREFIX "${AXCCL_PC_TO_PREFIX}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/axccl.pc.in ${CMAKE_BINARY_DIR}/axccl.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/axccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
