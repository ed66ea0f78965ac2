// Other processes for tests: the test's own program, started again with a function to run and an environment.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace softgpu::test {

// Returns the exit status. `argument` is that of Start(); `channel` is a socket to the parent.
using ChildFunction = int (*)(const std::string& argument, int channel);

// In such a function: the first condition that does not hold ends it, and its line is printed.
#define MUST(condition)                                                 \
  if (!(condition)) {                                                   \
    std::fprintf(stderr, "child: line %d: %s\n", __LINE__, #condition); \
    return 1;                                                           \
  }

// At namespace scope, in the file of the function.
struct RegisterChild {
  RegisterChild(const char* name, ChildFunction function);
};

class Child {
 public:
  Child(const std::string& name, const std::string& argument,
        const std::vector<std::pair<std::string, std::string>>& environment = {});
  ~Child();
  int channel() const { return channel_; }
  // Returns the exit status; 128 + signal if a signal has ended it.
  int Wait();
  void Kill();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

// Sends or receives a byte, which shows that the other side has come so far.
void SendSignal(int channel);
bool AwaitSignal(int channel);
void SendBytes(int channel, const void* data, size_t bytes);
bool ReceiveBytes(int channel, void* data, size_t bytes);
void SendDescriptor(int channel, int descriptor);
int ReceiveDescriptor(int channel);

}  // namespace softgpu::test
