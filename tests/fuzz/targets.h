// The parsers that read bytes from a socket, a file or the environment, each as a function of bytes that must return.
//
// The same functions run under libFuzzer (libfuzzer.cc, with AXCCL_SANITIZE=fuzzer-no-link,address) and in a plain
// driver that replays the corpus and mutates it. A comment at each target describes what it checks beyond not crashing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace axccl::fuzz {

struct Target {
  const char* name;
  void (*run)(const uint8_t* data, size_t size);
};

std::span<const Target> Targets();

}  // namespace axccl::fuzz
