# The files that `cmake --install` installs, and the library for programs built for NCCL.
#
# nccl.h and libnccl.so go to folders of their own, because NVIDIA's package owns those names. The header goes to
# include/axccl, beside axccl.h which includes it, and to include/axccl/nccl, which the flags of builds name for
# `#include <nccl.h>`: it has no other header that would hide one of the system or of the program, as malloc.h would. The
# library goes to lib/axccl/dropin, which is a prefix of its own for builds that look for NCCL: with a header, a lib, an
# nccl.pc and a CMake package.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# axccl_dropin(SOURCE): libnccl.so.2, which forwards every call to libaxccl.so, and libnccl.so to link with, in
# build/dropin and lib/axccl/dropin. It finds libaxccl.so relative to its own place (RPATH: LD_LIBRARY_PATH may name
# other versions), so this folder alone is enough, wherever it is moved together with the library. The folder lib in it is
# the folder itself: NCCL_ROOT/lib is where FindNCCL modules look.
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
  set(to ${CMAKE_INSTALL_LIBDIR}/axccl/dropin)
  install(TARGETS axccl_dropin
    LIBRARY DESTINATION ${to} COMPONENT library NAMELINK_COMPONENT development)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/nccl.h numbers REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
  list(JOIN numbers . AXCCL_NCCL_VERSION)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${CMAKE_BINARY_DIR}/nccl.pc @ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl-config.cmake.in ${CMAKE_BINARY_DIR}/nccl-config.cmake @ONLY)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/nccl-config-version.cmake VERSION ${AXCCL_NCCL_VERSION}
    COMPATIBILITY SameMajorVersion)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/dropin_lib)
  file(CREATE_LINK . ${CMAKE_BINARY_DIR}/dropin_lib/lib SYMBOLIC)
  install(FILES ${CMAKE_BINARY_DIR}/dropin_lib/lib DESTINATION ${to} COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h DESTINATION ${to}/include COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/nccl.pc DESTINATION ${to}/pkgconfig COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/nccl-config.cmake ${CMAKE_BINARY_DIR}/nccl-config-version.cmake
    DESTINATION ${to}/cmake/nccl COMPONENT development)
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
  # initfirst: its fork handlers must be the first that a process has.
  target_link_options(axccl_malloc PRIVATE -Wl,--no-undefined -Wl,-z,nodelete -Wl,-z,initfirst)
  set_target_properties(axccl_malloc PROPERTIES OUTPUT_NAME axccl-malloc VERSION ${PROJECT_VERSION} SOVERSION 0
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  # No program links with it.
  install(TARGETS axccl_malloc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endfunction()

# axccl_install_programs(TARGET...): installs the ones that exist to bin/, where they find the library.
function(axccl_install_programs)
  file(RELATIVE_PATH to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  foreach(program ${ARGN})
    if(TARGET ${program})
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
      axccl_manual(${program} programs $<TARGET_FILE:${program}> ${program})
      axccl_completion(${program} programs)
    endif()
  endforeach()
endfunction()

# axccl_manual(NAME COMPONENT FILE DEPENDS...): a manual page, made of what the program prints for --help and --version.
function(axccl_manual name component file)
  if(NOT AXCCL_HELP2MAN)
    return()
  endif()
  set(page ${CMAKE_BINARY_DIR}/man/${name}.1)
  add_custom_command(OUTPUT ${page}.gz DEPENDS ${ARGN} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
    COMMAND ${AXCCL_HELP2MAN} --no-info --no-discard-stderr --name=${AXCCL_SUMMARY_${name}} --output=${page} ${file}
    COMMAND gzip -9nf ${page})
  set_property(GLOBAL APPEND PROPERTY AXCCL_MANUALS ${page}.gz)
  install(FILES ${page}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()

function(axccl_completion name component)
  set(file ${CMAKE_BINARY_DIR}/completions/${name})
  file(READ ${PROJECT_SOURCE_DIR}/tools/completion.bash function)
  file(CONFIGURE OUTPUT ${file} CONTENT "@function@complete -o default -F _axccl @name@\n" @ONLY)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions COMPONENT ${component})
endfunction()

# axccl_softgpu(): the command softgpu and the libraries of the software GPU, where they are built.
function(axccl_softgpu)
  if(NOT TARGET softgpu_cudart12 OR AXCCL_SANITIZE)
    return()
  endif()
  set(libraries ${CMAKE_INSTALL_LIBDIR}/axccl/softgpu)
  install(TARGETS softgpu_cuda softgpu_cudart13 softgpu_cudart12 LIBRARY DESTINATION ${libraries} COMPONENT softgpu)
  file(RELATIVE_PATH installed /${CMAKE_INSTALL_BINDIR} /${libraries})
  file(READ ${PROJECT_SOURCE_DIR}/tools/softgpu/run script)
  string(REPLACE "\ninstalled=\n" "\ninstalled=${installed} version=${PROJECT_VERSION}\n" script "${script}")
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/softgpu/bin/softgpu CONTENT "${script}" FILE_PERMISSIONS OWNER_READ
    OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/softgpu/bin/softgpu DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT softgpu)
  install(FILES ${CMAKE_BINARY_DIR}/softgpu/libcuda.so DESTINATION ${libraries} COMPONENT softgpu)  # a link
  # The extension for PyTorch is compiled where it is used.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/softgpu/torch DESTINATION ${libraries} COMPONENT softgpu
    FILES_MATCHING PATTERN "*.cc" PATTERN "*.h" PATTERN "*.py")
  set(AXCCL_SUMMARY_softgpu "run CUDA programs without a GPU")
  axccl_manual(softgpu softgpu ${CMAKE_BINARY_DIR}/softgpu/bin/softgpu ${PROJECT_SOURCE_DIR}/tools/softgpu/run)
  axccl_completion(softgpu softgpu)
endfunction()

# axccl_installed_document(DOCUMENT OUTPUT): without links to what only the source tree has, whose paths it shows instead.
function(axccl_installed_document document output)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${document})
  file(READ ${PROJECT_SOURCE_DIR}/${document} text)
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?((include|perf|src|tests|tools|transports|kernels|CONTRIBUTING)[^)#]*)[^)]*\\)"
    "\\1 (`\\3`)" text "${text}")
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
endfunction()

# Documents, and the programs in them as files.
function(axccl_documents)
  set(examples ${CMAKE_BINARY_DIR}/examples)
  file(MAKE_DIRECTORY ${examples})
  foreach(example README.md:hello.c docs/pipelines.md:pipelines.c)
    string(REPLACE ":" ";" example ${example})
    list(GET example 0 document)
    list(GET example 1 output)
    execute_process(COMMAND ${CMAKE_COMMAND} -DDOCUMENT=${PROJECT_SOURCE_DIR}/${document} -DBLOCK=1
      -DOUTPUT=${examples}/${output} -P ${PROJECT_SOURCE_DIR}/tests/api/document_example.cmake COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/axccl)
  file(GLOB documents RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
  file(GLOB pictures CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.svg)
  foreach(document README.md ${documents})
    axccl_installed_document(${document} ${CMAKE_BINARY_DIR}/documents/${document})
    get_filename_component(below ${document} DIRECTORY)
    install(FILES ${CMAKE_BINARY_DIR}/documents/${document} DESTINATION ${folder}/${below} COMPONENT programs)
  endforeach()
  install(FILES ${pictures} DESTINATION ${folder}/docs COMPONENT programs)
  install(FILES ${examples}/hello.c ${examples}/pipelines.c DESTINATION ${folder}/examples COMPONENT programs)
endfunction()

# What is installed; sets AXCCL_PROGRAMS to the programs that a wheel has, too.
function(axccl_install)
  list(TRANSFORM AXCCL_PERF_COLLECTIVES APPEND _perf OUTPUT_VARIABLE programs)
  set(programs axccl-info axccl-plan ${programs} strided_perf)
  set(AXCCL_PROGRAMS ${programs} PARENT_SCOPE)
  # What manual pages say that they are.
  set(AXCCL_SUMMARY_axccl-info "what AxCCL finds on this machine")
  set(AXCCL_SUMMARY_axccl-plan "look at AxCCL's schedules, prove and simulate them")
  set(AXCCL_SUMMARY_axccl-program "check, run and simulate programs of many ranks")
  set(AXCCL_SUMMARY_strided_perf "time strided loops beside AxCCL's copies")
  foreach(collective ${AXCCL_PERF_COLLECTIVES})
    set(AXCCL_SUMMARY_${collective}_perf "time ${collective} of AxCCL")
  endforeach()
  if(BUILD_SHARED_LIBS)
    install(TARGETS axccl
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
    if(NOT AXCCL_SANITIZE)
      axccl_static_library(axccl)
    endif()
  else()
    axccl_static_library(axccl_api)
  endif()
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/axccl/*.h)
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axccl
    COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axccl/nccl
    COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
  find_program(AXCCL_HELP2MAN help2man)
  if(NOT AXCCL_HELP2MAN)
    message(STATUS "Left out: manual pages (no help2man)")
  endif()
  axccl_install_programs(${programs} axccl-program)
  axccl_softgpu()
  axccl_documents()
  get_property(manuals GLOBAL PROPERTY AXCCL_MANUALS)
  add_custom_target(manuals ALL DEPENDS ${manuals})

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/axccl)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/axcclConfig.cmake.in
    ${CMAKE_BINARY_DIR}/axcclConfig.cmake INSTALL_DESTINATION ${package}
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  # A minor version may break what the one before promised, while the major version is 0.
  set(compatible SameMajorVersion)
  if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(compatible SameMinorVersion)
  endif()
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake COMPATIBILITY ${compatible})
  install(FILES ${CMAKE_BINARY_DIR}/axcclConfig.cmake ${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake
    DESTINATION ${package} COMPONENT development)

  file(RELATIVE_PATH AXCCL_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" AXCCL_PC_TO_PREFIX "${AXCCL_PC_TO_PREFIX}")
  list(TRANSFORM AXCCL_STATIC_LIBRARIES PREPEND -l OUTPUT_VARIABLE private)
  list(JOIN private " " AXCCL_PC_PRIVATE)
  list(JOIN AXCCL_STATIC_OPTIONS " " AXCCL_PC_PRIVATE_OPTIONS)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/axccl.pc.in ${CMAKE_BINARY_DIR}/axccl.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/axccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
