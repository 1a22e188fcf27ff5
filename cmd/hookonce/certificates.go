package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// certificateTimeout bounds the fetching of a provider's signing certificate:
// the provider waits meanwhile.
const certificateTimeout = 3 * time.Second

// fetchCertificates returns a function that fetches signing certificates
// (AWS SNS, PayPal) and remembers them. Which hosts are trusted is decided
// before it is called.
func fetchCertificates() func(url string) (*x509.Certificate, error) {
	client := &http.Client{
		Timeout: certificateTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("a certificate's address must not redirect: the host it leads to was not checked")
		},
	}
	var mu sync.Mutex
	known := make(map[string]*x509.Certificate)
	return func(url string) (*x509.Certificate, error) {
		mu.Lock()
		certificate := known[url]
		mu.Unlock()
		if certificate != nil && time.Now().Before(certificate.NotAfter) {
			return certificate, nil
		}
		response, err := client.Get(url)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("its address answered %d", response.StatusCode)
		}
		content, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		if err != nil {
			return nil, err
		}
		if certificate, err = parseCertificate(content); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if len(known) >= 64 { // nobody rotates that often
			clear(known)
		}
		known[url] = certificate
		return certificate, nil
	}
}

func parseCertificate(content []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it is no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
