// Asking another process of the machine for a file (handover.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/shm/handover.h"

namespace axccl::shm {

// The limits of a request.
struct Patience {
  service::Clock::time_point deadline;
  service::Stop stop;
  std::string what;  // in messages: "attaching to process 7"
};
Status WaitError(service::Wait wait, const Patience& patience, const char* what);
Status Gone(const Patience& patience);

// Takes the file of that token from the process that listens at the abstract Unix socket of that name.
Result<service::Fd> RequestFile(const std::array<char, 48>& name, const std::array<uint8_t, 16>& token,
                                const Patience& patience, Reply* reply);

}  // namespace axccl::shm
