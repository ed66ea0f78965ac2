# Build rules shared by every folder: one static library per folder, linked into libaxccl.so.

find_package(Threads REQUIRED)

# The flags of all targets.
add_library(axccl_flags INTERFACE)
target_include_directories(axccl_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
# Few and small thread-locals on hot paths: worth static TLS.
target_compile_options(axccl_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -ftls-model=initial-exec
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# GCC 12 takes the short strings of its own library for out of bounds, and for overlapping.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(axccl_flags INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
endif()
target_link_libraries(axccl_flags INTERFACE Threads::Threads)
if(AXCCL_SANITIZE)
  # A finding ends the program, or tests would still pass. Dynamic types are not checked, because that takes descriptors,
  # and fails when a test has used up all of them.
  target_compile_options(axccl_flags INTERFACE -fsanitize=${AXCCL_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -fno-sanitize=vptr)
  target_link_options(axccl_flags INTERFACE -fsanitize=${AXCCL_SANITIZE})
  # ThreadSanitizer does not see fences; it does not check an order that rests on one.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND AXCCL_SANITIZE STREQUAL "thread")
    target_compile_options(axccl_flags INTERFACE -Wno-tsan)
  endif()
else()
  # Programs take single functions out of the libraries of folders, not whole sources or units.
  target_compile_options(axccl_flags INTERFACE -ffunction-sections -fdata-sections)
  target_link_options(axccl_flags INTERFACE -Wl,--gc-sections)
endif()

# axccl_light_code(): code of this folder and those below, tests, is compiled at -Og, which takes the compiler half of the
# time of -O2: most of it runs once and waits for the library. axccl_heavy_code(TARGET...) for what computes.
macro(axccl_light_code)
  string(REPLACE "-O2" "-Og" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
endmacro()
function(axccl_heavy_code)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O2>)
    set_target_properties(${target} PROPERTIES AXCCL_HEAVY ON)
  endforeach()
endfunction()

# axccl_share_headers(PROGRAM HEADER... FOLDERS FOLDER...): precompiles the headers for PROGRAM, and for all GoogleTest programs
# of these folders and those below that are compiled alike (GCC may crash where flags differ): most of a test's time would go
# into them. Called when all are there.
function(axccl_share_headers program)
  cmake_parse_arguments(ARG "" "" "FOLDERS" ${ARGN})
  target_precompile_headers(${program} PRIVATE ${ARG_UNPARSED_ARGUMENTS})
  set(folders ${ARG_FOLDERS})
  while(folders)
    list(POP_FRONT folders folder)
    get_directory_property(below DIRECTORY ${folder} SUBDIRECTORIES)
    list(APPEND folders ${below})
    get_directory_property(targets DIRECTORY ${folder} BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      get_target_property(heavy ${target} AXCCL_HEAVY)
      get_target_property(libraries ${target} LINK_LIBRARIES)
      if(type STREQUAL "EXECUTABLE" AND NOT heavy AND NOT target STREQUAL program AND "GTest::gtest" IN_LIST libraries)
        target_precompile_headers(${target} REUSE_FROM ${program})
      endif()
    endforeach()
  endwhile()
endfunction()

# Half of the time to compile a folder, and more to compile one change. tools/test makes its build folders so.
set(large_units OFF)
if(AXCCL_SANITIZE)
  set(large_units ON)
endif()
option(AXCCL_LARGE_UNITS "Compile a dozen sources of a folder as one unit" ${large_units})

# axccl_large_units(TARGET...): of these targets, if the option is on. Names in unnamed namespaces must not collide.
function(axccl_large_units)
  if(AXCCL_LARGE_UNITS)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# axccl_apart(SOURCE...): each is a unit of its own also where others of this folder are joined, because names in its unnamed
# namespace are also names of theirs.
function(axccl_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# axccl_read_headers_once(TARGET APART): half of the time of most sources goes into headers. The library's targets share
# those of the standard, precompiled with axccl_base, and are compiled as large units unless APART is true.
function(axccl_read_headers_once target apart)
  if(NOT apart)
    axccl_large_units(${target})
  endif()
  if(AXCCL_SANITIZE)
    return()  # flags differ, and a large unit reads them once
  endif()
  if(target STREQUAL "axccl_base")
    target_precompile_headers(axccl_base PRIVATE <algorithm> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory>
      <mutex> <span> <string> <string_view> <utility> <vector>)
  elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/(src|transports)/")  # others have other flags
    target_precompile_headers(${target} REUSE_FROM axccl_base)
  endif()
endfunction()

# axccl_embeds(TARGET SOURCE FILE): the source has the assembler embed a file. ccache does not see which, and would give back
# an object with an older one; and a unity build forgets on what its sources depend.
function(axccl_embeds target source file)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file} SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "")
endfunction()

# axccl_hot_code(SOURCE...): code of this folder that every small call runs through is compiled at -O3, and reads its headers
# itself, because GCC may crash where flags differ from those of precompiled ones. Under a sanitizer it is optimised as
# little as other code.
function(axccl_hot_code)
  if(AXCCL_SANITIZE)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    return()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O3>)
endfunction()

# axccl_folder(NAME [APART] SOURCES a.cc ... DEPS axccl_base ...): the library of one folder.
function(axccl_folder name)
  cmake_parse_arguments(ARG "APART" "" "SOURCES;DEPS" ${ARGN})
  add_library(axccl_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(axccl_${name} PUBLIC axccl_flags ${ARG_DEPS})
  axccl_read_headers_once(axccl_${name} ${ARG_APART})
endfunction()

# axccl_test(NAME SOURCES a_test.cc ... DEPS ... [TIMEOUT s] [LABELS l ...] [FULL_ONLY]): one GoogleTest program, one CTest
# entry.
function(axccl_test name)
  cmake_parse_arguments(ARG "FULL_ONLY" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE axccl_flags ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  if(ARG_FULL_ONLY)
    axccl_full_only(${name})
    add_test(NAME ${name} COMMAND ${name} CONFIGURATIONS full)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77)
endfunction()

# axccl_start_first(TEST...): the longest tests of this folder, among those that there are. Otherwise the first ctest of a
# build folder, which does not know the times yet, waits for the last of them alone.
function(axccl_start_first)
  foreach(test ${ARGN})
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES COST 100)
    endif()
  endforeach()
endfunction()

# axccl_sampled(ONE_OF TEST...): entries that repeat suites in another setting, or are long. Each runs every ONE_OFth of its
# tests, other ones with each seed; of 1 the cases of its tests are sampled alone. `tools/test full` runs all.
function(axccl_sampled one_of)
  foreach(test ${ARGN})
    if(TEST ${test})
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT AXCCL_TEST_ONE_OF=${one_of})
      set_property(TEST ${test} APPEND PROPERTY LABELS sampled)
    endif()
  endforeach()
endfunction()

# axccl_full_only(TARGET...): what only `tools/test full` builds. It runs the tests of CTest's configuration "full" as well.
add_custom_target(full_checks)
function(axccl_full_only)
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(full_checks ${ARGN})
endfunction()
