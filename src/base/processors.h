// Where threads may run: processors by the operating system's numbers, in ascending lists.
//
// Own threads are those that run nothing but the library's own code and last as long as the process. They begin with
// what the thread that starts them may use; once ranks are placed (src/comm/net/placement.h), all of them may use what
// the ranks of the process were given, taken together. Threads of the application are never touched, nor are those that
// run its callbacks or that it waits for. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace axccl {

inline constexpr int kMaxProcessor = 65535;

// What the calling thread may use.
std::vector<int> AllowedProcessors();

// Whether more threads want to run on this machine than it has processors. False where that cannot be told. `line`:
// what /proc/loadavg says.
bool AllProcessorsTaken();
bool AllProcessorsTaken(const std::string& line, int processors);

// Has the kernel put the calling thread on another of the processors it may use. The set of those stays as it is.
void MoveToAnotherProcessor();

// The calling thread is an own one from now on, and has this name (at most 15 characters). Nothing is thrown: where
// memory runs out, it stays where it started.
void BecomeOwnThread(const char* name);
// What the calling own thread began with, for threads that it starts; empty on others.
std::vector<int> ProcessorsAtStart();
// The calling thread may use these from now on. No-op for none.
void BindThisThread(const std::vector<int>& processors);
// Own threads, those that come later, too, may use these beside what they were allowed by earlier calls. False where
// the system refused for one that is there. No-op in a forked child, which has none.
bool AllowOwnThreads(const std::vector<int>& processors);

}  // namespace axccl
