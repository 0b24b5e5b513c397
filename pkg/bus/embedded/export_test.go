package embedded

// SyncsAlways reports whether the running server writes each message to the disk before it acknowledges it.
func (s *Server) SyncsAlways() bool { return s.nats.JetStreamConfig().SyncAlways }
