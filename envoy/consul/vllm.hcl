# On each machine with a model server: consul services register vllm.hcl
service {
  name = "vllm"
  port = 8000
  check {
    http     = "http://127.0.0.1:8000/health"
    interval = "5s"
    timeout  = "2s"
  }
}
