# On each machine with a router: consul services register router.hcl
service {
  name = "prefix-extproc"
  port = 9002
  check {
    grpc     = "127.0.0.1:9002/readiness"
    interval = "2s"
    timeout  = "1s"
  }
}
