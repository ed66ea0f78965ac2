// The processors that threads may run on, by the operating system's numbers, in ascending lists.
//
// An "own thread" runs only the library's code and lasts as long as the process. It begins with the processors of the
// thread that starts it. Once ranks are placed (src/comm/net/placement.h), all own threads may use the union of the
// processors that the ranks of the process were given. The library never changes threads of the application, nor
// threads that run its callbacks or that it waits for. Thread-safe.
#pragma once

#include <functional>
#include <vector>

namespace axccl {

inline constexpr int kMaxProcessor = 65535;

// Returns the processors that the calling thread may use.
std::vector<int> AllowedProcessors();

// Returns whether more threads want to run on this machine than it has processors, or false when that is unknown.
// Allocates nothing: threads that wait ask. `line`: the content of /proc/loadavg.
bool AllProcessorsTaken();
bool AllProcessorsTaken(const char* line, int processors);

// Makes the kernel move the calling thread to another processor of its set. The set stays as it is.
void MoveToAnotherProcessor();
// The same, to the processor for which `load` returns least, if that is less than for the thread's own.
void MoveToLeastLoaded(const std::function<int(int processor)>& load);

// Makes the calling thread an own thread with this name (at most 15 characters). Does not throw: if memory runs out,
// the thread stays where it started.
void BecomeOwnThread(const char* name);
// Returns the processors that the calling own thread began with, for threads that it starts; empty on other threads.
std::vector<int> ProcessorsAtStart();
// Sets the processors that the calling thread may use. Does nothing for an empty list.
void BindThisThread(const std::vector<int>& processors);
// Adds to the processors that own threads may use, those that start later included. Returns false when the system
// refused for a running thread. Does nothing in a forked child, which has no own threads.
bool AllowOwnThreads(const std::vector<int>& processors);

}  // namespace axccl
