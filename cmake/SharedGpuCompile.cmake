# SPDX-License-Identifier: Apache-2.0
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

# Sanitizer builds compile slowly, mostly because each file includes the same headers. So they compile eight files as
# one (unity build). The release build compiles most files of the product one by one, and so finds a file that lacks an
# include or hides a name.
if(SHAREDGPU_SANITIZE)
  set(CMAKE_UNITY_BUILD ON)
endif()

# Sets the options of this project's targets: includes relative to the root ("protocol/messages.h"), warnings as errors,
# and the sanitizers of the chosen preset.
function(sharedgpu_target name)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                         -Wnon-virtual-dtor -Werror)
  # Checks that code holds the mutex (interposer/memory/mutex.h) that guards the data it accesses.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
  if(SHAREDGPU_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${SHAREDGPU_SANITIZE} -fno-omit-frame-pointer
                                           -fno-sanitize-recover=all
                                           -fno-sanitize=vptr)  # some parts are built without RTTI
    target_compile_options(${name} PRIVATE -Wno-shadow)  # in a unity build, a file may hide another's names
    # GCC mistakes the sanitizers' code for uninitialized reads, even in its own headers.
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    # The interposer calls the driver's functions through function types that differ from the real ones: these types
    # pass narrow arguments in whole registers.
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    # TSan does not support fences. Asio uses fences only together with atomics, which TSan supports.
    if(SHAREDGPU_SANITIZE MATCHES "thread")
      target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
    target_link_options(${name} PRIVATE -fsanitize=${SHAREDGPU_SANITIZE})
  endif()
endfunction()

# cuda.h: from an installed toolkit, else from Debian's nvidia-cuda-dev (/usr/include, or .cuda/ where
# scripts/setup unpacked it).
function(sharedgpu_find_cuda)
  find_path(CUDA_DRIVER_INCLUDE cuda.h
            HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include /usr/include
                  ${PROJECT_SOURCE_DIR}/.cuda/include REQUIRED)
  if(NOT TARGET sharedgpu_cuda_headers)
    add_library(sharedgpu_cuda_headers INTERFACE)
    target_include_directories(sharedgpu_cuda_headers SYSTEM INTERFACE ${CUDA_DRIVER_INCLUDE})
  endif()
endfunction()
