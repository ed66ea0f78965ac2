#include "tests/harness/fibers/context.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstdint>
#include <cstdlib>

namespace axccl::fibers {
namespace {

void* Map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return memory;
}

}  // namespace

#if defined(__x86_64__)

// Saves the registers that a function must preserve on the old stack, and loads them from the new one. About 30 times
// faster than swapcontext, which calls the kernel for the signal mask.
extern "C" void axccl_fibers_switch(void** leave, void* enter);
asm(R"(
.text
.globl axccl_fibers_switch
.hidden axccl_fibers_switch
.type axccl_fibers_switch, @function
axccl_fibers_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size axccl_fibers_switch, .-axccl_fibers_switch
)");

struct Stack::Machine {
  void* fiber = nullptr;
  void* scheduler = nullptr;
};

void Stack::Prepare(void (*entry)()) {
  constexpr int kKept = 6;
  auto** top = reinterpret_cast<void**>(static_cast<char*>(memory_) + bytes_);
  *--top = nullptr;  // no return address: as after a call, the stack is 8 bytes off its alignment at the entry
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kKept; ++i) *--top = nullptr;
  machine_->fiber = top;
}

void Stack::Enter() { axccl_fibers_switch(&machine_->scheduler, machine_->fiber); }
void Stack::Leave() { axccl_fibers_switch(&machine_->fiber, machine_->scheduler); }

#else

struct Stack::Machine {
  ucontext_t fiber, scheduler;
};

void Stack::Prepare(void (*entry)()) {
  getcontext(&machine_->fiber);
  machine_->fiber.uc_stack.ss_sp = memory_;
  machine_->fiber.uc_stack.ss_size = bytes_;
  machine_->fiber.uc_link = nullptr;
  makecontext(&machine_->fiber, entry, 0);
}

void Stack::Enter() { swapcontext(&machine_->scheduler, &machine_->fiber); }
void Stack::Leave() { swapcontext(&machine_->fiber, &machine_->scheduler); }

#endif

Stack::Stack(size_t bytes) : memory_(Map(bytes)), bytes_(bytes), machine_(new Machine) {}

Stack::~Stack() {
  munmap(memory_, bytes_);
  delete machine_;
}

}  // namespace axccl::fibers
