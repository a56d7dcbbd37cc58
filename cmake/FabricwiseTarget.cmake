# SPDX-License-Identifier: Apache-2.0
#
# One call makes one small target, with warnings as errors and every header
# compiled on its own.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)
find_program(FABRICWISE_CCACHE ccache)
if(FABRICWISE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FABRICWISE_CCACHE})
endif()

# Flags of everything, so that a sanitizer sees all of our code.
add_library(fabricwise_flags INTERFACE)
if(FABRICWISE_SANITIZE)
  target_compile_options(fabricwise_flags INTERFACE
    -fsanitize=${FABRICWISE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(fabricwise_flags INTERFACE
    -fsanitize=${FABRICWISE_SANITIZE})
  if(FABRICWISE_SANITIZE MATCHES "undefined")
    target_compile_options(fabricwise_flags INTERFACE
      -fno-sanitize-recover=undefined)
  endif()
endif()
if(FABRICWISE_COVERAGE)
  # Tests with several threads would otherwise count below zero.
  target_compile_options(fabricwise_flags INTERFACE
    --coverage -fprofile-update=atomic)
  target_link_options(fabricwise_flags INTERFACE --coverage)
endif()

# Warnings of our own code; generated code goes without. They are errors with the
# compiler that the tree is checked with: each newer one warns of more, and must
# build it all the same. GCC 12 takes `"text" + std::string` for an overlapping
# copy when it optimises (its bug 105651).
add_library(fabricwise_warnings INTERFACE)
target_compile_options(fabricwise_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND
   CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(fabricwise_warnings INTERFACE -Werror -Wno-restrict)
endif()

# fabricwise_library(name HEADERS h... SOURCES cc... DEPENDS target...)
# Sources are named relative to the calling folder, included from the root.
function(fabricwise_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC)
  target_sources(${name}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
           FILES ${ARG_HEADERS}
    PRIVATE ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name}
    PUBLIC ${ARG_DEPENDS} fabricwise_flags
    PRIVATE fabricwise_warnings)
endfunction()

# fabricwise_program(name SOURCES cc... DEPENDS target...)
function(fabricwise_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE
    ${ARG_DEPENDS} fabricwise_flags fabricwise_warnings)
endfunction()

# All that the label "unit" runs: where a sanitizer's build may stop.
add_custom_target(unit_tests)

# fabricwise_add_test(target LABEL label COMMAND word... [TIMEOUT seconds])
# registers a program of ours. Its working directory is the root of the tree.
function(fabricwise_add_test target)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${target} COMMAND ${ARG_COMMAND}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${target} PROPERTIES
    LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL STREQUAL "unit")
    add_dependencies(unit_tests ${target})
  endif()
endfunction()

# fabricwise_test(name SOURCES cc... DEPENDS target... [LABEL label]
#                 [TIMEOUT seconds])
# makes a GoogleTest program; its label is "unit" where none is given.
function(fabricwise_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  fabricwise_program(${name} SOURCES ${ARG_SOURCES}
    DEPENDS ${ARG_DEPENDS} GTest::gmock_main)
  fabricwise_add_test(${name} LABEL ${ARG_LABEL} COMMAND ${name}
    TIMEOUT ${ARG_TIMEOUT})
endfunction()

# fabricwise_embed(out.cc HEADER header FUNCTION name FILES file...) makes a
# source of the calling folder's build tree that holds the texts of `files`.
function(fabricwise_embed source)
  cmake_parse_arguments(ARG "" "HEADER;FUNCTION" "FILES" ${ARGN})
  list(JOIN ARG_FILES "|" inputs)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${source}
    COMMAND ${CMAKE_COMMAND} "-DINPUTS=${inputs}"
            -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/${source}
            -DHEADER=${ARG_HEADER} -DFUNCTION=${ARG_FUNCTION}
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${ARG_FILES} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    COMMENT "Embed ${source}" VERBATIM)
endfunction()
