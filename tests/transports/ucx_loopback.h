// UCX of the calling process over the loopback device, for ranks that are all in it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "tests/harness/process_ids.h"
#include "transports/ucx/connect.h"

namespace axccl::ucx {

// The address of the process, which is number `process`.
inline remote::NetworkAddress LoopbackAddress(int process) {
  remote::SelfOptions self;
  self.rails.resize(1);
  self.rails[0].devices = "lo";
  self.process = harness::ProcessId(process);
  auto* const local = reinterpret_cast<sockaddr_in*>(&self.rails[0].local);
  local->sin_family = AF_INET;
  local->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Result<remote::NetworkAddress> address = SelfAddress(self);
  EXPECT_TRUE(address.ok()) << address.status().message();
  return address.ok() ? address.value() : remote::NetworkAddress();
}

}  // namespace axccl::ucx
