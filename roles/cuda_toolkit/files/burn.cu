// Keeps every SM busy with fused multiply-adds for the seconds asked for. Two uses: its compilation proves that the
// toolkit makes machine code for this chip, and its run is the load under which clock_cap reads the clock.
#include <chrono>
#include <cstdio>
#include <cstdlib>

// Four independent chains a thread hide the latency of an FMA; the result is written so that nothing is optimised away.
__global__ void burn(float *out, int rounds) {
  float a = threadIdx.x * 1e-6f, b = a + 1.0f, c = b + 1.0f, d = c + 1.0f;
  const float m = 0.999f, k = 1e-3f;
#pragma unroll 16
  for (int i = 0; i < rounds; ++i) {
    a = fmaf(a, m, k);
    b = fmaf(b, m, k);
    c = fmaf(c, m, k);
    d = fmaf(d, m, k);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

int main(int argc, char **argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 8.0;
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::fprintf(stderr, "burn: no CUDA device\n");
    return 2;
  }
  const int blocks = device.multiProcessorCount * 8, threads = 256;
  float *out = nullptr;
  if (cudaMalloc(&out, sizeof(float) * blocks * threads) != cudaSuccess) return 2;
  const auto start = std::chrono::steady_clock::now();
  double spent = 0.0;
  long launches = 0;
  while (spent < seconds) {
    burn<<<blocks, threads>>>(out, 1 << 18);
    if (cudaDeviceSynchronize() != cudaSuccess) {
      std::fprintf(stderr, "burn: %s\n", cudaGetErrorString(cudaGetLastError()));
      return 1;
    }
    spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++launches;
  }
  const double flop = 8.0 * (1 << 18) * blocks * threads * launches;
  std::printf("{\"seconds\": %.2f, \"tflops\": %.2f}\n", spent, flop / spent / 1e12);
  cudaFree(out);
  return 0;
}
